// expect: setCreateOpState(f): write int f(std::map<std::string, std::string> attrs, StatefulOp**
// state), with OpContext context in the middle if you need the device; std::unique_ptr<StatefulOp>*
// also does for the state
#include <map>

#include "opkit/op/function/function_operator.hpp"

int CreateState(std::map<std::string, std::string>, opkit::StatefulOp*) { return 1; }
REGISTER_OP(Broken).setCreateOpState(CreateState);
