"""A Slurm of one node on this machine, from Debian's packages slurm-wlm and munge, without systemd.

    with one_node_slurm(tmp_path / "slurm"):
        subprocess.run(["srun", "hostname"])

Needs root: munged runs as its own user, slurmd starts jobs. No accounting, no cgroups, no GPU. The
configuration stands at its usual place while it runs, since jobs do not inherit SLURM_CONF.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONFIGURATION = Path("/etc/slurm/slurm.conf")
PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sbatch")


def missing() -> str:
    """Why there can be no Slurm here; "" if there can."""
    if os.geteuid():
        return "Slurm's daemons need root"
    if CONFIGURATION.exists():
        return f"{CONFIGURATION} exists: this machine has a Slurm of its own"
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    return f"no {absent[0]} here: apt-get install -y slurm-wlm munge" if absent else ""


@contextmanager
def one_node_slurm(folder: Path) -> Iterator[None]:
    """Starts the daemons with their files in `folder`, and ends them."""
    folder.mkdir(parents=True)
    _configure(folder)
    munged = _start_munge()
    daemons = [
        subprocess.Popen([name, "-D"], stdout=log, stderr=log)
        for name in ("slurmctld", "slurmd")
        for log in [(folder / f"{name}.out").open("w")]
    ]
    try:
        _wait(folder)
        yield
    finally:
        for daemon in [*reversed(daemons), *filter(None, [munged])]:
            daemon.terminate()
            daemon.wait(30)
        CONFIGURATION.unlink()


def _configure(folder: Path) -> None:
    host, cores = socket.gethostname(), os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 * 8 // 10
    for name in ("state", "spool"):
        (folder / name).mkdir()
    CONFIGURATION.parent.mkdir(exist_ok=True)
    CONFIGURATION.write_text(
        f"""\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
    )


def _start_munge() -> subprocess.Popen[bytes] | None:
    """munged, unless one runs already."""
    if subprocess.run(["munge", "-n"], capture_output=True).returncode == 0:
        return None
    for name, mode in (("/run/munge", 0o755), ("/var/log/munge", 0o700), ("/etc/munge", 0o700)):
        Path(name).mkdir(parents=True, exist_ok=True)
        shutil.chown(name, "munge", "munge")
        os.chmod(name, mode)
    key = Path("/etc/munge/munge.key")
    if not key.exists():
        key.write_bytes(os.urandom(128))
        shutil.chown(key, "munge", "munge")
        key.chmod(0o400)
    return subprocess.Popen(["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged", "-F"])


def _wait(folder: Path) -> None:
    for _ in range(60):
        done = subprocess.run(["sinfo", "--noheader", "-o", "%t"], capture_output=True, text=True)
        if done.stdout.strip() == "idle":
            return
        time.sleep(0.5)
    logs = "\n".join(path.read_text()[-1500:] for path in sorted(folder.glob("*.log")))
    raise RuntimeError(f"Slurm did not come up:\n{logs}")
