// The operators by which the processes of a plan communicate, and the parts of graphs.
#include "opkit/cluster/impl/communication.ipp"
#include "opkit/cluster/impl/communicator.ipp"
#include "opkit/cluster/impl/local.ipp"
#include "opkit/cluster/impl/process_parts.ipp"
#include "opkit/cluster/impl/reduce.ipp"
#include "opkit/cluster/operators.hpp"
