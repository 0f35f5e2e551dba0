"""Settings all tests share."""

from hypothesis import settings

# Compiling at first use takes longer than any example: time is not what these tests are about.
settings.register_profile("kernelweave", deadline=None)
settings.load_profile("kernelweave")
