"""The engines of model calls: any model string of dspy's own HTTP engine, a user's `dspy.LM`, or the embedded model.

Adapters, predictors and time limits are in `signatures`. Retries and the effect of a failure on a turn are in `graphs`.
This module imports nothing, so that `local.start_loading` can run before dspy is imported.
"""
