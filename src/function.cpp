// The compiled runtime: operators made of functions, and the host's table that serves them.
#include "opkit/op/boundary/convert/impl/abi_config.ipp"
#include "opkit/op/boundary/host/impl/host_table.ipp"
#include "opkit/op/function/impl/function_body.ipp"
#include "opkit/op/function/impl/function_calls.ipp"
#include "opkit/op/function/impl/function_operator.ipp"
#include "opkit/op/function/impl/function_state.ipp"
#include "opkit/op/function/impl/function_views.ipp"
#include "opkit/op/function/impl/log_hook.ipp"
