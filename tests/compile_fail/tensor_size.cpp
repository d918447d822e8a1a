// expect: a Tensor has no size(): numel() counts its elements, rank() its axes, nbytes() its bytes
#include "opkit/core/tensor.hpp"

int64_t Count(const opkit::Tensor& x) { return x.size(); }
