#include "base/timestamp.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static bool digits(const char *s, int n, int *ret)
{
    int v = 0;
    for (int i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        v = v * 10 + (s[i] - '0');
    }
    *ret = v;
    return true;
}

#define YEAR_0     (-62167219200) /* 0000-01-01T00:00:00Z */
#define YEAR_10000 253402300800

/* Days from 1970-01-01 of a proleptic Gregorian date (H. Hinnant's civil algorithm). */
static int64_t days_from_civil(int y, int m, int d)
{
    y -= m <= 2;
    int era = (y >= 0 ? y : y - 399) / 400;
    int yoe = y - era * 400;
    int doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    int doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    return (int64_t)era * 146097 + doe - 719468;
}

static int days_in_month(int y, int m)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    return days[m - 1] + (m == 2 && leap);
}

bool time_parse(const char *s, int64_t *ret)
{
    int y, mo, d, h, mi, sec, oh = 0, om = 0;
    if (strlen(s) < 20 || !digits(s, 4, &y) || s[4] != '-' || !digits(s + 5, 2, &mo) ||
        s[7] != '-' || !digits(s + 8, 2, &d) || (s[10] != 'T' && s[10] != 't' && s[10] != ' ') ||
        !digits(s + 11, 2, &h) || s[13] != ':' || !digits(s + 14, 2, &mi) || s[16] != ':' ||
        !digits(s + 17, 2, &sec))
        return false;
    if (mo < 1 || mo > 12 || d < 1 || d > days_in_month(y, mo) || h > 23 || mi > 59 || sec > 60)
        return false;
    const char *p = s + 19;
    if (*p == '.') {
        p++;
        size_t n = strspn(p, "0123456789");
        if (!n)
            return false;
        p += n;
    }
    int sign = 0;
    if (*p == 'Z' || *p == 'z') {
        p++;
    } else if (*p == '+' || *p == '-') {
        sign = *p == '+' ? 1 : -1;
        if (!digits(p + 1, 2, &oh) || p[3] != ':' || !digits(p + 4, 2, &om) || oh > 23 || om > 59)
            return false;
        p += 6;
    } else {
        return false;
    }
    if (*p)
        return false;
    int64_t t = days_from_civil(y, mo, d) * 86400 + h * 3600 + mi * 60 + sec -
                sign * (int64_t)(oh * 3600 + om * 60);
    if (t < YEAR_0 || t >= YEAR_10000) /* an offset may lead there; it has no text form */
        return false;
    *ret = t;
    return true;
}

const char *time_format(int64_t t, char out[static TIME_TEXT_MAX])
{
    time_t tt = (time_t)t;
    struct tm tm;
    if (t < YEAR_0 || t >= YEAR_10000 || !gmtime_r(&tt, &tm)) {
        snprintf(out, TIME_TEXT_MAX, "0000-00-00T00:00:00Z");
        return out;
    }
    /* strftime's %Y has no leading zeros. */
    size_t n = (size_t)snprintf(out, TIME_TEXT_MAX, "%04d", (tm.tm_year + 1900) % 10000);
    strftime(out + n, TIME_TEXT_MAX - n, "-%m-%dT%H:%M:%SZ", &tm);
    return out;
}
