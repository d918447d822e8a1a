// expect: setParseAttrs(f): write int f(std::map<std::string, std::string> attrs, int* num_in, int*
// num_out)
#include <map>

#include "opkit/op/function/function_operator.hpp"

int ParseAttrs(std::map<std::string, std::string>, int, int) { return 1; }
REGISTER_OP(Broken).setParseAttrs(ParseAttrs);
