// The highest rates of this machine, measured once and kept in a file.
#ifndef OPKIT_TOOLS_OPKIT_PEAK_HPP_
#define OPKIT_TOOLS_OPKIT_PEAK_HPP_

#include <string>

#include "opkit/profile/machine_peak.hpp"

namespace CLI {
class App;
}

namespace cli {

// Adds --measure-peak.
void AddMeasurePeakOption(CLI::App& app, bool* measure);

// The file of measured peaks: peak.json in the folder of TuningCache::DefaultPath(); empty if that
// is empty.
std::string PeakFile();

// Returns the rates of `threads` threads. They come from the file if it has those of this machine
// (MachineKey), unless `measure`; else they are measured, and written to the file. A damaged file
// counts as an empty one. Rates that were measured while other programs ran get a warning, and are
// measured again the next time.
opkit::MachineRates PeakOf(int threads, bool measure);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_PEAK_HPP_
