"""The torch frontend: FX graphs to the IR."""

from attnc.compiler.frontends.torch.importer import ImportFailure, import_graph

__all__ = ["ImportFailure", "import_graph"]
