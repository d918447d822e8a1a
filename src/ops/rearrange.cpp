// Operators of opkit::ops that rearrange elements, and sums along equations and axes.
#include "opkit/ops/indexing/compress.hpp"
#include "opkit/ops/indexing/depth_space.hpp"
#include "opkit/ops/indexing/gather_nd.hpp"
#include "opkit/ops/indexing/reverse_sequence.hpp"
#include "opkit/ops/indexing/unique.hpp"
#include "opkit/ops/math/cumulative.hpp"
#include "opkit/ops/math/einsum.hpp"
