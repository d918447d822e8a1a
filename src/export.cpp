// The compiled runtime: the parts that the exports to all hosts share.
#include "opkit/export/impl/core.ipp"
#include "opkit/export/impl/description.ipp"
#include "opkit/export/impl/exported_operator.ipp"
#include "opkit/export/impl/foreign_tensor.ipp"
#include "opkit/export/impl/gradient_operator.ipp"
#include "opkit/export/impl/host_symbol.ipp"
#include "opkit/export/impl/kept_operators.ipp"
#include "opkit/export/impl/ready_operator.ipp"
