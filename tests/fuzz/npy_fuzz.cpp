// Any bytes: an Error, or a tensor no larger than they are.
#include <cstdlib>

#include "npy.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const opkit::Tensor tensor = cli::ParseNpy({reinterpret_cast<const char*>(data), size});
    if (static_cast<size_t>(tensor.nbytes()) > size) std::abort();
  } catch (const opkit::Error&) {
  }
  return 0;
}
