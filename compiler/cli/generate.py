"""``attnc generate``: text from a decoder, through paged attention that was derived from it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnc.compiler.cli.errors import CliError

if TYPE_CHECKING:
    from attnc.compiler.checkpoints import Checkpoint

HELP = "A Hugging Face folder, a .gguf file or a folder with one, pkg.module:factory, or models:NAME."


def generate(
    src: Annotated[str, typer.Argument(metavar="SRC", help=HELP)],
    prompt: Annotated[
        list[str] | None,
        typer.Option("--prompt", "-p", metavar="TEXT", help="Text to go on from; may be given several times."),
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Each prompt is what a user says in a conversation.")] = False,
    max_new: Annotated[int, typer.Option("--max-new", metavar="N", help="Tokens to generate at most.")] = 64,
    max_length: Annotated[
        int, typer.Option("--max-length", metavar="N", help="The most tokens of a request, prompt included.")
    ] = 2048,
    temperature: Annotated[float, typer.Option(help="0 takes the most probable token.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k most probable tokens.")] = None,
    top_p: Annotated[float, typer.Option(help="Draw from the tokens that hold this share of probability.")] = 1.0,
    min_p: Annotated[float, typer.Option(help="Draw from tokens this many times as probable as the first.")] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: repeat less.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal texts.")] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", metavar="TEXT", help="Ends the text.")] = None,
    kv: Annotated[
        str | None, typer.Option(help="How keys and values are kept: f32, bf16, f16, int8, fp8, int4, or int8/int4.")
    ] = None,
    report: Annotated[
        bool,
        typer.Option("--report", help="Score a text with the cache of --kv, or several, instead of generating."),
    ] = False,
    text: Annotated[
        Path | None, typer.Option("--text", metavar="FILE", help="What --report scores; default: Python's own manual.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what --report found as JSON.")] = False,
) -> None:
    """Generate text. One prompt is printed as it comes, several one after the other when all are done.

    With --report: how much perplexity and logits change when keys and values are kept in fewer bits.
    """
    if report == bool(prompt):
        raise typer.BadParameter("give --prompt, or --report without one")
    if report:
        report_caches(open_checkpoint(src), kv, text, max_length, as_json=json)
        return
    if text is not None or json:
        raise typer.BadParameter("--text and --json go with --report")
    from attnc.compiler.generator import Generator
    from attnc.runtime.sampling_params import SamplingParams

    params = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        max_new_tokens=max_new,
        stop=tuple(stop or ()),
    )
    found = open_checkpoint(src)
    prompts = [_ids(found.tokenizer, said, chat) for said in prompt or ()]
    generator = Generator(found.model, found.tokenizer, max_length=max_length, kv=kv, stop_tokens=found.eos_token_ids)
    if len(prompts) == 1:
        for output in generator.stream(prompts[0], params):
            _say(output.text)
            if output.detail:
                raise CliError(f"{src}: {output.detail}")
        _say("\n")
        return
    for said, made in zip(prompt or (), generator.generate(prompts, params), strict=True):
        _say(f"## {said}\n{made.text}{made.detail}\n")


def open_checkpoint(src: str) -> Checkpoint:
    """The model of a source with its tokenizer. Raises CliError for one without, and what loading raises."""
    from attnc.compiler.checkpoints import Checkpoint, load_checkpoint

    path = Path(src).expanduser()
    if path.exists():
        found = load_checkpoint(path)
    else:
        from attnc.compiler.cli.source import resolve

        model: Any = resolve(src, None).model
        found = Checkpoint(model, getattr(model, "tokenizer", None), None, (), src)
    if found.tokenizer is None:
        raise CliError(f"{src}: has no tokenizer, so there is no text; use attnc.Generator with token ids")
    return found


def report_caches(found: Checkpoint, kv: str | None, text: Path | None, max_length: int, *, as_json: bool) -> None:
    """Score a text with one cache or several and print what changed. Raises CliError for a text that can't be read."""
    from attnc.compiler.cache_scoring import QUANTISED, manual, score_caches
    from attnc.compiler.cli.console import progress, stdout

    tokens = _encoded(found.tokenizer, manual() if text is None else _read(text))
    kvs = QUANTISED if kv is None else (kv,)
    with progress(f"scoring {found.name}"):
        report = score_caches(found.model, tokens, kvs, name=found.name, max_length=max_length)
    if as_json:
        print(report.to_json())
    else:
        report.render(stdout())


def _ids(tokenizer: Any, text: str, chat: bool) -> list[int]:
    if not chat:
        return _encoded(tokenizer, text)
    talk = getattr(tokenizer, "chat", None)
    if talk is None:
        raise CliError("--chat: this source has no chat template")
    return list(talk([{"role": "user", "content": text}]))


def _encoded(tokenizer: Any, text: str) -> list[int]:
    found = tokenizer.encode(text)
    return list(getattr(found, "ids", found))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CliError(f"reading {path}: not a text file ({error.reason} at byte {error.start})") from error


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
