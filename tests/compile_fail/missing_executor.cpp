// expect-shown: // defined in opkit/graph.hpp
#include <opkit/opkit.hpp>

using namespace opkit;

void Run() { Executor exec(5); }
