// The compiled runtime: the parts that the exports to all hosts share.
#include "opkit/export/impl/core.ipp"
#include "opkit/export/impl/foreign_tensor.ipp"
#include "opkit/export/impl/ready_operator.ipp"
