"""gradgen writes the gradient of an ONNX graph as another ONNX graph, in standard operators."""
