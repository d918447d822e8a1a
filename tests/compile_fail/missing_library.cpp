// expect-shown: // defined in opkit/plugin.hpp
#include <opkit/opkit.hpp>

using namespace opkit;

void Load() { Library library = Library::Load("libmy_ops.so"); }
