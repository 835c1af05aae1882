"""Cards, publishing and the Hub on loopback: everything that puts a folder where a user's client finds it.

Importing this package pulls in nothing; its modules need the `hub` extra (huggingface_hub, aiohttp) and
are imported by name. No task logic lives here: a folder comes in, a commit and a tag come out.
"""
