"""Replacing a folder by another one, in one operation if the system can do that."""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import shutil

from keras_bertfam.presets.locks import (
    Replaced,
    check_place,
    locked,
    locked_for_writers,
)
from keras_bertfam.whole_files import flush

_TRIES = 20
_AT_CWD, _EXCHANGE = -100, 2  # Constants of `renameat2`
# What belongs to weights, a task, a tokenizer, and to the exports of the last two.
_WEIGHTS = r"model\.weights\.(h5|json)|model_\d{5}\.weights\.h5"
_TASK = r"task\.json|task\.weights\.h5|preprocessor\.json"
_TOKENIZER = (
    r"preprocessor\.json|assets/tokenizer/(vocabulary\.(txt|json|spm)|merges\.txt)"
)
# Weights of `transformers` in other files, which hold the old model.
_OTHER_WEIGHTS = (
    r"model-\d{5}-of-\d{5}\.safetensors|model\.safetensors\.index\.json|"
    r"pytorch_model(-\d{5}-of-\d{5}|\.generator)?\.bin|"
    r"pytorch_model\.bin\.index\.json|tf_model\.h5|flax_model\.msgpack"
)
# A new model has its own settings of writing, and needn't be of sentence-transformers.
_PARTS = (
    rf"(generator/)?({_OTHER_WEIGHTS})|"
    r"generator/(config\.json|model\.safetensors)|generation_config\.json|"
    r"modules\.json|config_sentence_transformers\.json|sentence_[a-z-]+_config\.json"
)
_FOREIGN_TOKENIZER = (
    r"vocab\.(txt|json)|merges\.txt|(spiece|spm|sentencepiece\.bpe)\.model|"
    r"tokenizer\.json|"
    r"(special_tokens_map|added_tokens)\.json"
)


def put_in_place(aside: str, path: str) -> None:
    """Move a written folder to its place; see `folders.write_aside`."""
    written = _files_in(aside)
    os.chmod(aside, 0o777 & ~_umask())
    if os.path.lexists(path):
        _flush(aside, written)
    with locked_for_writers(path):
        for _ in range(_TRIES):
            with contextlib.suppress(Replaced):
                _put_once(aside, path, written)
                return
    raise OSError(errno.EBUSY, "The folder is replaced all the time.", path)


def _put_once(aside, path, written):
    with _moved_by_others(path):
        bring_back(path)
        if not os.path.lexists(path):
            os.rename(aside, path)
            return
    with locked(path, fcntl.LOCK_EX) as lock:
        for name in _files_in(aside) - written:
            os.unlink(os.path.join(aside, name))  # of the try before
        _leave_readme(aside, path, written)
        try:
            _carry_over(path, aside, _outdated(written, path))
        finally:
            check_place(lock, path)
        with _moved_by_others(path):
            _swap(aside, path)


@contextlib.contextmanager
def _moved_by_others(path):
    """Raise `Replaced` if the system reports that others have moved a folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT):
            raise
        raise Replaced(path) from error


def _files_in(folder):
    """List the files of a folder, with paths relative to it."""
    return {
        os.path.relpath(os.path.join(at, name), folder)
        for at, _, names in os.walk(folder)
        for name in names
    }


def _flush(folder, files):
    """Write files to the disk before the files that they replace are removed."""
    for name in files:
        flush(os.path.join(folder, name))
    flush(folder)


def _outdated(written, old):
    """Make a pattern of the old folder's files that the written ones outdate.

    For example, a new backbone outdates a task with its heads and its preprocessor. A
    tokenizer stays, since it fits any backbone of its vocabulary.
    """
    kinds = []
    if written & {"model.weights.h5", "model.weights.json"}:
        kinds.append(_WEIGHTS)
        if os.path.exists(os.path.join(old, "task.json")):
            kinds.append(_TASK)
    if "tokenizer.json" in written:
        kinds.append(_TOKENIZER)
    if "model.safetensors" in written:
        kinds.append(_PARTS)
    if "tokenizer_config.json" in written:
        kinds.append(_FOREIGN_TOKENIZER)
    return re.compile("|".join(kinds) or r"(?!)")


def _leave_readme(aside, old, written):
    """Remove a new model card if the old folder's `README.md` is the user's text."""
    # Imported late: it needs KerasHub for the published names.
    from keras_bertfam.presets import cards

    theirs = os.path.join(old, cards.FILE)
    ours = cards.FILE in written and cards.is_ours(os.path.join(aside, cards.FILE))
    if ours and os.path.lexists(theirs) and not cards.is_ours(theirs):
        written.discard(cards.FILE)
        os.unlink(os.path.join(aside, cards.FILE))


def _carry_over(old, new, outdated):
    """Link the old folder's files into the new one, but for outdated ones."""

    def ignore(folder, names):
        return {name for name in names if not is_kept(os.path.join(folder, name))}

    def is_kept(path):
        name = os.path.relpath(path, old)
        there = os.path.join(new, name)
        folders = os.path.isdir(there) and os.path.isdir(path)
        if os.path.lexists(there) and (not folders or os.path.islink(path)):
            return False
        return not outdated.fullmatch(name)

    shutil.copytree(
        old, new, symlinks=True, ignore=ignore, copy_function=_link, dirs_exist_ok=True
    )


def _link(source, target):
    try:
        os.link(source, target)
    except FileNotFoundError:  # removed by its owner
        pass
    except OSError:  # of another owner, or a file system without links
        shutil.copy2(source, target)


def _swap(aside, path):
    """Swap two folders."""
    here = None
    with contextlib.suppress(FileNotFoundError):
        here = os.getcwd()
    if not _exchange(aside, path):
        old = interim_path(path)
        shutil.rmtree(old, ignore_errors=True)
        os.rename(path, old)
        os.rename(aside, path)
        os.rename(old, aside)
    if here is not None and os.path.commonpath([here, path]) == path:
        os.chdir(here)  # not in the old folder, which goes


def _exchange(one, other):
    """Swap two folders in one operation; give `False` if the system can't do that."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    paths = (_AT_CWD, os.fsencode(one), _AT_CWD, os.fsencode(other))
    if rename(*paths, _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(number, os.strerror(number), other)


def interim_path(path: str) -> str:
    """Give the path of a folder between the two renames that replace it."""
    parent, name = os.path.split(path)
    return os.path.join(parent, f".replaced-{name}")


def bring_back(path: str) -> None:
    """Give a folder its name back after a kill between two renames."""
    if not os.path.lexists(path) and os.path.isdir(interim_path(path)):
        os.rename(interim_path(path), path)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
