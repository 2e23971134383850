"""Optimised ONNX out: the file that came in, with attentions replaced by onnxruntime's own operator."""
