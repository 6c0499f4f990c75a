"""The domain smooth.ops: SmoothAbs, LogCosh and LogMeanExp."""
