// The compiled runtime: the profiler.
#include "opkit/profile/impl/profile.ipp"
#include "opkit/profile/impl/chrome_trace.ipp"
#include "opkit/profile/impl/machine_peak.ipp"
#include "opkit/profile/impl/perfetto_trace.ipp"
#include "opkit/profile/impl/profile_table.ipp"
#include "opkit/profile/impl/profiler.ipp"
#include "opkit/profile/impl/recorder.ipp"
#include "opkit/profile/impl/report.ipp"
