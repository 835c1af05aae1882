"""Declared data sets, trainings and experiments, and the code that runs them."""
