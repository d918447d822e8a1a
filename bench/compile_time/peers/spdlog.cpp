#include <spdlog/spdlog.h>

int main() { spdlog::info("{} and {:.2f}", "text", 1.5); }
