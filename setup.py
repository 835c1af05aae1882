"""Puts the lm-eval task files beside lm-eval's own, so that `lm_eval --tasks stsr_oracle_h16` finds them.

lm-eval looks for tasks in its own folder and offers no entry point for those of others. The files of
`eval_tasks/harness` therefore install as `lm_eval/tasks/stsr/` too, and those of
`eval_tasks/scienceworld_harness` as `lm_eval/tasks/stsr_scienceworld/`: copied into the build of a wheel,
and as data files in an editable install. `pip uninstall stsr` removes them. They hold names and settings;
the code stays in `stsr.eval_tasks`. Everything else is declared in pyproject.toml.
"""

import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HARNESSES = {
    Path("eval_tasks/harness"): Path("lm_eval/tasks/stsr"),
    Path("eval_tasks/scienceworld_harness"): Path("lm_eval/tasks/stsr_scienceworld"),
}
FILES = {
    target: sorted(path for path in folder.iterdir() if path.is_file())
    for folder, target in HARNESSES.items()
}
"""Folder below lm-eval's parent -> the files that go there."""


class BuildWithTasks(build_py):
    """Copies the task files into the build that becomes a wheel."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for folder, paths in FILES.items():
                target = Path(self.build_lib, folder)
                target.mkdir(parents=True, exist_ok=True)
                for path in paths:
                    shutil.copy(path, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        installed = [Path(folder, path.name) for folder, paths in FILES.items() for path in paths]
        extra = [] if self.editable_mode else [str(Path(self.build_lib, path)) for path in installed]
        return super().get_outputs(include_bytecode) + extra


class WithData(Distribution):
    """Lets an editable wheel carry data files: setuptools asks `has_data`, a name that it never defines."""

    def has_data(self) -> bool:
        return bool(self.data_files)


def site_packages() -> Path:
    """Where pip puts modules, relative to where it puts data files."""
    return Path(sysconfig.get_path("purelib")).relative_to(sysconfig.get_path("data"))


editable = "editable_wheel" in sys.argv
setup(
    distclass=WithData,
    cmdclass={"build_py": BuildWithTasks},
    data_files=[
        (str(site_packages() / folder), [str(path) for path in paths]) for folder, paths in FILES.items()
    ]
    if editable
    else [],
)
