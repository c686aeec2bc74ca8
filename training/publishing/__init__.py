"""From a fitted model to a served one: export, residual prior, model folder, model card, MLflow runs and registry."""
