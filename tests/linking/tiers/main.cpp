#include "tiers.hpp"

int main() {
#ifdef LEAN
  return TwiceByInvoke(2) == 4 ? 0 : 1;
#else
  return TwiceByInvoke(2) == 4 && SixTimesByGraph(2) == 12 && ProfiledRuns(1) == 2 ? 0 : 1;
#endif
}
