#include "model/bird.h"

bool bird_symbol_ok(const char *s)
{
    size_t n = 0;
    for (; s[n]; n++) {
        bool good = (s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') ||
                    (s[n] >= '0' && s[n] <= '9') || s[n] == '_' || s[n] == '.' || s[n] == ':' ||
                    s[n] == '-';
        if (!good)
            return false;
    }
    return n > 0;
}
