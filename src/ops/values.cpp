// Operators of opkit::ops that make, choose and convert values, and those that run graphs.
#include "opkit/ops/cast.hpp"
#include "opkit/ops/control_flow.hpp"
#include "opkit/ops/generators.hpp"
#include "opkit/ops/identity.hpp"
#include "opkit/ops/loops/loop.hpp"
#include "opkit/ops/loops/scan.hpp"
#include "opkit/ops/subgraph.hpp"
#include "opkit/ops/where.hpp"
