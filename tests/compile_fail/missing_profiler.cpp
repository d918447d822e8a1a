// expect-shown: // defined in opkit/profile.hpp
#include <opkit/opkit.hpp>

using namespace opkit;

void Print() { ProfileTable table = MakeProfileTable(Profiler::Read()); }
