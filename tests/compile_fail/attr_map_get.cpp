// expect: AttrMap::Get<T>: T is an integer, bool, floating-point number, std::string, or a
// std::vector of one of these
#include "opkit/op/function/attr_map.hpp"

auto value = opkit::AttrMap().Get<int*>("name");
