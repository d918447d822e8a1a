// expect: scratch(f): write int64_t f(const AttrMap& attrs, const
// std::vector<std::vector<int64_t>>& inshapes), or scratch(bytes)
#include "opkit/op/function/function_operator.hpp"

REGISTER_OP(Broken).scratch([] { return 10; });
