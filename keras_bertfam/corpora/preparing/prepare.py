"""Preparing a corpus from text, with Apache Beam."""

import contextlib
import errno
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from keras_bertfam.arguments import checked
from keras_bertfam.corpora.manifest import (
    TOKENIZER,
    Manifest,
    Shard,
    check_output,
    describe_tokenizer,
    ids_dtype,
)
from keras_bertfam.corpora.preparing import steps
from keras_bertfam.corpora.preparing.duplicates import NearDuplicates, hash_test_sets
from keras_bertfam.corpora.preparing.job import (
    FAILURES,
    Job,
    digest,
    raise_failure,
    read_json,
    save_array,
    whole_folder,
    write_blocks,
)
from keras_bertfam.corpora.preparing.pipeline import (
    beam_options,
    progress,
    run_pipeline,
)
from keras_bertfam.corpora.preparing.processes import process_pool
from keras_bertfam.corpora.preparing.quality import QualityRules
from keras_bertfam.corpora.preparing.sources import find_sources, make_blocks
from keras_bertfam.presets import working_folders
from keras_bertfam.presets.tokenizer_formats.tokenizer_sources import (
    check_family,
    open_tokenizer,
)
from keras_bertfam.presets.tokenizer_presets import load_given_tokenizer
from keras_bertfam.text_files.sources import MAX_LINE_LENGTH, Reading, Source
from keras_bertfam.types import Path, Tokenizer
from keras_bertfam.whole_files import flush_folder, written_aside

# A shard has about `_SHARD_BYTES` of text. If that makes fewer than `_FEW` shards, they
# have less, but at least `_SMALL_SHARD_BYTES`.
_SHARD_BYTES, _SMALL_SHARD_BYTES, _FEW = 1 << 26, 1 << 22, 16


_REASONS = {
    "contamination": "with text of a test set",
    "exact_duplicates": "equal to another",
    "near_duplicates": "nearly equal to another",
    "empty": "without any token",
}


@checked
def prepare(
    sources: Path | Sequence[Path],
    output: Path,
    tokenizer: Tokenizer | Path,
    *,
    quality: QualityRules | None = None,
    exact_duplicates: bool = True,
    near_duplicates: NearDuplicates | float | Literal["auto"] | None = "auto",
    test_sets: Path | Sequence[Path] = (),
    test_ngram: int = 13,
    shards: int | None = None,
    feature: str = "text",
    split: str = "train",
    one_per_file: bool = False,
    encoding: str = "utf-8",
    max_line_length: int = MAX_LINE_LENGTH,
    workers: int = 1,
    beam_arguments: Sequence[str] = (),
    report: Callable[[str], Any] = print,
    family: str | None = None,
) -> Manifest:
    """Prepare a corpus: tokenize text once, and write its ids to shards.

    Documents are read and filtered, duplicates are dropped, and the others are split
    into sentences and tokenized. Shards have whole documents, so that each training can
    make rows of its own length.

    The same sources and settings give the same bytes, for any number of workers. A
    folder beside `output` has the work in progress; its disk needs room for about twice
    the text. If a run is killed, start it again, and it continues from this folder.

    Args:
        sources: paths or patterns of files, `"tfds:NAME"` and `"hf:NAME"`. Files are
            text with blank lines between documents, `.jsonl` with an object in each
            line, or `.parquet`. Text and `.jsonl` may be compressed, as `.gz` or
            `.zst`.
        output: path of a new or empty folder.
        tokenizer: a tokenizer layer, the name or folder of its preset, or its files: a
            folder of `transformers`, `vocab.txt`, `tokenizer.json`, `spiece.model`, or
            `vocab.json` with `merges.txt` beside it. It is also saved in `output`, as
            the preset `tokenizer`.
        quality: `QualityRules`, or `None` for no rules.
        exact_duplicates: bool. Whether one of several equal documents stays, and the
            others are dropped. Defaults to `True`.
        near_duplicates: `NearDuplicates`, its `threshold` alone, or `None`. Of
            documents that are almost equal the longest stays. `"auto"` is 0.8, and
            `None` with `exact_duplicates=False`, where nothing else is possible.
        test_sets: sources of test sets. Documents with `test_ngram` successive words of
            a test set are dropped.
        test_ngram: int. Defaults to `13`.
        shards: int. Number of shards; `None` chooses it by the size of the sources.
        feature: the field or column of the text. Defaults to `"text"`.
        split: split of datasets of TFDS and Hugging Face. Defaults to `"train"`.
        one_per_file: bool. Whether a text file is one document, whose blank lines are
            left out. Defaults to `False`.
        encoding: Python's name of the encoding of text files and JSON. Defaults to
            `"utf-8"`.
        max_line_length: int. Most characters in a line; a line is held in memory while
            it is tokenized. Defaults to 4,194,304.
        workers: int. Number of processes on this machine. Defaults to `1`.
        beam_arguments: options of Beam, such as `["--runner=FlinkRunner"]`. Its
            workers must see sources and `output` under the same paths.
        report: function that takes a line of text.
        family: name of a family. The tokenizer is this family's if its files don't name
            one.

    Returns:
        `Manifest`.

    Raises:
        FileNotFoundError: if a source is missing.
        ImportError: if Apache Beam, or a package for a source, isn't installed.
        ValueError: if an argument is out of range; if `tokenizer` isn't a tokenizer, or
            not one of `family`; if a source doesn't fit its name or `encoding`, or has
            a longer line; or if `output` isn't empty.
        OSError: if the disk is full.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer.from_preset("my_bert")
    keras_bertfam.corpora.prepare("corpus/*.txt", "my_corpus", tokenizer, workers=2)
    ```

    References: [Lee et al., 2021](https://arxiv.org/abs/2107.06499);
    [Brown et al., 2020](https://arxiv.org/abs/2005.14165), appendix C.
    """
    options = beam_options(workers, beam_arguments)
    if near_duplicates == "auto":
        near_duplicates = 0.8 if exact_duplicates else None
    if isinstance(near_duplicates, (int, float)):
        near_duplicates = NearDuplicates(near_duplicates)
    if near_duplicates is not None and not exact_duplicates:
        raise ValueError(
            "`near_duplicates` must be None with exact_duplicates=False, as equal "
            f"documents are nearly equal, too. Received: {near_duplicates}."
        )
    for name, value in {"shards": shards, "test_ngram": test_ngram}.items():
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {value}.")
    if isinstance(test_sets, (str, os.PathLike)):
        test_sets = [test_sets]
    output = os.path.realpath(output)
    check_output(output)
    reading = Reading(feature, split, one_per_file, encoding, max_line_length)
    found = find_sources(sources, reading)
    if isinstance(tokenizer, (str, os.PathLike)):
        open_tokenizer(tokenizer, family)  # raises its errors before any work
    # Processes start before the tokenizer is loaded, since that starts TensorFlow.
    with process_pool(workers), _working_folder(output) as folder:
        if isinstance(tokenizer, (str, os.PathLike)):
            given, tokenizer = tokenizer, load_given_tokenizer(tokenizer, family)
            if family is not None:
                check_family(tokenizer, family, given)
        blocks = make_blocks(found, reading)
        described = describe_tokenizer(tokenizer)
        test_hashes = _write_test_hashes(folder, test_sets, reading, test_ngram)
        job = Job(
            folder=folder,
            blocks_file=write_blocks(folder, blocks),
            reading=reading,
            rules=quality or QualityRules(),
            exact_duplicates=exact_duplicates,
            near_duplicates=near_duplicates,
            test_hashes_file=test_hashes,
            test_ngram=test_ngram,
            tokenizer_digest=described["digest"],
            vocabulary_size=described["vocabulary_size"],
            shards=shards or _shards_for(found),
        )
        if not os.path.isdir(job.tokenizer_folder):
            with whole_folder(job.tokenizer_folder) as part:
                tokenizer.save_to_preset(part)
        _run(job, len(blocks), options, report)
        manifest = _manifest(job, len(blocks), found, described, test_sets)
        _publish(job, manifest, output)
    counts = ", ".join(f"{count:,} {name}" for name, count in manifest.counts.items())
    report(f"Wrote {output}: {counts}.")
    report(left_out(manifest))
    return manifest


def left_out(manifest: Manifest) -> str:
    """Say how many documents were left out of a corpus, and why.

    Args:
        manifest: `Manifest` of the corpus.
    """
    counts = {each["name"]: each["dropped"] for each in manifest.filters}
    reasons = [
        f"{count:,} {_REASONS.get(name, f'by the rule {name}')}"
        for name, count in counts.items()
        if count
    ]
    total = sum(counts.values())
    if not total:
        return "No document was left out."
    what = "1 document" if total == 1 else f"{total:,} documents"
    return f"Left out {what}: {', '.join(reasons)}."


def _shards_for(sources: Sequence[Source]) -> int:
    size = sum(source.bytes for source in sources)
    few = min(_FEW, size // _SMALL_SHARD_BYTES)
    return max(1, few, size // _SHARD_BYTES)


@contextlib.contextmanager
def _working_folder(output: str) -> Iterator[str]:
    """Lock a folder beside `output` for one run at a time, and delete it at the end."""
    folder = f"{output}-working"
    with working_folders.working_folder(folder, output):
        shutil.rmtree(os.path.join(folder, FAILURES), ignore_errors=True)
        yield folder
        working_folders.discard(folder)


def _write_test_hashes(folder, test_sets, reading, size):
    """Write the runs of words of test sets, and return the file, or `None`."""
    if not test_sets:
        return None
    hashes = hash_test_sets(test_sets, reading, size)
    name = f"test-{digest(hashes.tolist())}.npy"
    with written_aside(os.path.join(folder, name)) as part:
        save_array(part, hashes)
    return name


def _run(job, blocks, options, report):
    def folders():
        counted = {
            "documents of blocks": (job.path(steps.DOCUMENTS), blocks),
            "tokens of blocks": (job.path(steps.TOKENS), blocks),
        }
        with contextlib.suppress(FileNotFoundError):
            key = read_json(job.path(steps.PLAN))["key"]
            counted["shards"] = (job.path(f"reports-{key}"), job.shards)
        return counted

    with contextlib.suppress(FileNotFoundError):
        os.remove(job.path(steps.PLAN))
    try:
        with progress(folders, report):
            run_pipeline(job, blocks, options)
    except Exception as error:
        raise_failure(job.folder)
        if isinstance(error, OSError) or error.__class__ is not RuntimeError:
            raise
        raise OSError(errno.EIO, f"A worker failed: {error}.") from error


def _manifest(job, blocks, sources, described, test_sets):
    plan = read_json(job.path(steps.PLAN))
    dropped: Counter[str] = Counter()
    for number in range(blocks):
        folder = steps.documents_folder(job, number)
        dropped.update(read_json(os.path.join(folder, "report.json"))["dropped"])
    for key in plan["tokens"]:
        report = job.path(steps.TOKENS, key, "report.json")
        dropped.update(read_json(report)["dropped"])
    reports = job.path(f"reports-{plan['key']}")
    shards = [
        Shard(**read_json(os.path.join(reports, f"{number:05}.json")))
        for number in range(job.shards)
    ]
    arguments: dict[str, Any] = {
        name: {"value": value} for name, value in job.rules.arguments().items()
    }
    if test_sets:
        named = [os.fspath(name) for name in test_sets]
        arguments["contamination"] = {"test_sets": named, "test_ngram": job.test_ngram}
    if job.exact_duplicates:
        arguments["exact_duplicates"] = {}
    if job.near_duplicates is not None:
        arguments["near_duplicates"] = vars(job.near_duplicates)
    arguments["empty"] = {}
    return Manifest(
        tokenizer=described,
        dtype=str(ids_dtype(job.vocabulary_size)),
        shards=shards,
        filters=[
            {"name": name, "arguments": value, "dropped": dropped[name]}
            for name, value in arguments.items()
        ],
        sources=[{"name": s.name, "bytes": s.bytes} for s in sources],
        settings={**vars(job.reading)},
    )


def _publish(job, manifest, output):
    """Move shards, tokenizer and manifest to their place, in one operation."""
    key = read_json(job.path(steps.PLAN))["key"]
    shards = job.path(f"shards-{key}")
    for name in os.listdir(shards):
        if name.startswith("."):  # left by a killed worker
            os.remove(os.path.join(shards, name))
    saved = os.path.join(shards, TOKENIZER)
    shutil.rmtree(saved, ignore_errors=True)
    shutil.copytree(job.tokenizer_folder, saved)
    os.chmod(saved, os.stat(shards).st_mode)
    manifest.write(shards)
    flush_folder(shards)
    os.rename(shards, output)
