"""Where commands write, looked at before they begin."""

from pathlib import Path

from results.errors import InputError


def check(*files: Path) -> None:
    """Raises InputError where files could not be written, for want of the folder they are in."""
    for file in files:
        check_folder(file.parent)
        if not file.parent.exists():
            raise InputError(f"{file.parent} does not exist: make it first")


def check_folder(folder: Path) -> None:
    """Raises InputError where it cannot be made, or is no folder."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        raise InputError(f"{there} is a file, not a folder: name another one")
