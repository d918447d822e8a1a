// expect: setScratch(f): write int64_t f(const AttrMap& attrs, const
// std::vector<std::vector<int64_t>>& inshapes), or setScratch(bytes)
#include "opkit/op/function/function_operator.hpp"

REGISTER_OP(Broken).setScratch([] { return 10; });
