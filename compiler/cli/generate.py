"""``attnc generate``: text from a decoder, through paged attention that was derived from it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnc.compiler.cli.errors import CliError

if TYPE_CHECKING:
    from attnc.compiler.generator import Generator

HELP = "A Hugging Face folder, a .gguf file or a folder with one, pkg.module:factory, or models:NAME."


def generate(
    src: Annotated[str, typer.Argument(metavar="SRC", help=HELP)],
    prompt: Annotated[
        list[str],
        typer.Option("--prompt", "-p", metavar="TEXT", help="Text to go on from; may be given several times."),
    ],
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
) -> None:
    """Generate text. One prompt is printed as it comes, several one after the other when all are done."""
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
    generator = open_generator(src, max_length=max_length, kv=kv)
    prompts = [_ids(generator, text, chat) for text in prompt]
    if len(prompts) == 1:
        for output in generator.stream(prompts[0], params):
            _say(output.text)
            if output.detail:
                raise CliError(f"{src}: {output.detail}")
        _say("\n")
        return
    for text, made in zip(prompt, generator.generate(prompts, params), strict=True):
        _say(f"## {text}\n{made.text}{made.detail}\n")


def open_generator(src: str, *, max_length: int, kv: str | None) -> Generator:
    """The generator of a source. Raises CliError for one without a tokenizer, and what loading and deriving raise."""
    from attnc.compiler.checkpoints import load_checkpoint
    from attnc.compiler.generator import Generator

    path = Path(src).expanduser()
    if path.exists():
        found = load_checkpoint(path)
        if found.tokenizer is None:
            raise CliError(f"{src}: has no tokenizer, so there is no text; use attnc.Generator with token ids")
        return Generator(found.model, found.tokenizer, max_length=max_length, kv=kv, stop_tokens=found.eos_token_ids)
    from attnc.compiler.cli.source import resolve

    model = resolve(src, None).model
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise CliError(f"{src}: has no tokenizer, so there is no text; use attnc.Generator with token ids")
    return Generator(model, tokenizer, max_length=max_length, kv=kv)  # type: ignore[arg-type]


def _ids(generator: Generator, text: str, chat: bool) -> list[int]:
    tokenizer = generator.tokenizer
    if not chat:
        return list(tokenizer.encode(text))  # type: ignore[union-attr]
    talk = getattr(tokenizer, "chat", None)
    if talk is None:
        raise CliError("--chat: this source has no chat template")
    return list(talk([{"role": "user", "content": text}]))


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
