// Operators of opkit::ops on sequences and optional values.
#include "opkit/ops/sequence/optional_operators.hpp"
#include "opkit/ops/sequence/sequence_map.hpp"
#include "opkit/ops/sequence/sequence_operators.hpp"
#include "opkit/ops/sequence/split_to_sequence.hpp"
