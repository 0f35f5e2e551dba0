"""The main job in one piece: from pictures with some labels to a model that names what is in new ones.

:class:`~kernelweave.app.tagger.PictureTagger` does it in Python, the command ``kernelweave`` from a terminal.
"""
