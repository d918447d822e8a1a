// The units of one program, each with another umbrella.
#ifndef LINKING_TIERS_HPP_
#define LINKING_TIERS_HPP_

float TwiceByInvoke(float x);    // with_opkit.cpp, which registers TierTwice
float SixTimesByGraph(float x);  // with_graph.cpp: TierThrice of the TierTwice
float ProfiledRuns(float x);     // with_all.cpp, which registers TierThrice

#endif  // LINKING_TIERS_HPP_
