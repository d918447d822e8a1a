// The compiled runtime: the report of a profile.
#include "opkit/report/impl/report.ipp"
