// Mapped files and NumPy's format, compiled once: they need no third-party code.
#include "opkit/interop/impl/mapped_file.ipp"
#include "opkit/interop/impl/npy.ipp"
