"""A Hugging Face Hub on 127.0.0.1 over plain git repositories, for those without an account or a network.

    names.py     what a repo, a file or a revision may be called
    gitrepo.py   one bare git repository, written with hashlib and zlib
    store.py     all repositories of one root, and the large files (LFS objects) that they share
    web.py       what every request handler needs: error answers, JSON bodies, paging, the Host check
    reads.py     handlers that read: info, tree, paths-info, refs, commits
    contents.py  handlers that give file contents, whole or in ranges
    writes.py    handlers that write: create, move, delete, preupload, commit, tags, branches
    lfs.py       handlers of the large file protocol: batch, single PUT, multipart, verify
    upstream.py  repos that the store does not hold, fetched anonymously from another Hub
    server.py    the aiohttp application, and the process that serves it
    process.py   starting and stopping such a process: `running_hub` and `serve`

Runs on Linux and macOS. Left out: xet, pull requests, discussions, history squashing. So clients upload
with HF_HUB_DISABLE_XET=1 (`stsr.hub_cards.publish` sees to that by itself).
"""
