"""From a fitted model to a served one: export, model folder, model card, MLflow runs and registry."""
