"""ONNX files as modules that ``torch.export`` traces: every op in its ATen form, the rest run by onnxruntime."""
