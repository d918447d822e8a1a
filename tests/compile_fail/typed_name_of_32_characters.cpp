// expect-first: a name has 1 to 31 characters
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Copy(Context&, In<"abcdefghijklmnopqrstuvwxyz012345", float>, Out<"y", float>) {}
