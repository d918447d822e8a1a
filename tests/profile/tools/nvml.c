/* NVML with three GPUs: the first uses 1.5 J between two readings, the second has no counter, the
 * third uses nothing. NVML has no other GPU. */
static int g_users = 0;
static unsigned long long g_millijoules = 500000;

int nvmlInit_v2(void) { return ++g_users, 0; }
int nvmlShutdown(void) { return --g_users, 0; }
int opkit_test_nvml_users(void) { return g_users; }
int nvmlDeviceGetHandleByIndex_v2(unsigned gpu, void** device) {
  static char gpus[3];
  if (gpu > 2) return 2;
  *device = gpus + gpu;
  *(char*)*device = (char)gpu;
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  if (*(char*)device == 1) return 3;
  if (*(char*)device == 0) g_millijoules += 1500;
  *millijoules = g_millijoules;
  return 0;
}
const char* nvmlErrorString(int status) {
  return status == 2 ? "Invalid Argument" : status == 3 ? "Not Supported" : "Success";
}
