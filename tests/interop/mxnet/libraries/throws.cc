// Functions that throw through the boundary's functions in C, as an author's C++ can.
#include <stdexcept>

#include "boundary.h"

int ThrowsInForward(const Attributes*, const Tensor*, int, Tensor*, int, const Resource*) {
  throw std::runtime_error("forward throws");
}
int ThrowsInShape(const Attributes*, Shape*, int, Shape*, int) {
  throw std::logic_error("shape throws");
}
