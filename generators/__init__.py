"""Tables, tasks, their environment, views and prompts: everything that makes data and judges calls.

Pure Python: importing this package pulls in neither torch, datasets nor the network. `build` alone
needs pyarrow, and is imported by name where a data set is built.
"""
