"""Protects: a folder's hash covers names and bytes of visible files, and nothing else."""

import hashlib

from stsr.generators.files import file_sha256, folder_sha256


def test_a_folder_is_the_sorted_list_of_its_files(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b/c.txt").write_bytes(b"two")
    (tmp_path / "a.txt").write_bytes(b"one")
    one, two = hashlib.sha256(b"one").hexdigest(), hashlib.sha256(b"two").hexdigest()
    expected = hashlib.sha256(f"a.txt\0{one}\nb/c.txt\0{two}\n".encode()).hexdigest()
    assert file_sha256(tmp_path / "a.txt") == one
    assert folder_sha256(tmp_path) == expected
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache/x").write_bytes(b"x")
    assert folder_sha256(tmp_path) == expected
    (tmp_path / "a.txt").rename(tmp_path / "d.txt")
    assert folder_sha256(tmp_path) != expected
