#!/bin/busybox sh
# /init of the Linux guest that serves: brings up its network device, and becomes the server.
#
# The address is that of a machine of nom, see host/vmm/src/namespace.rs. /modules has its drivers; /serve
# starts the server.
b=/bin/busybox
$b mkdir -p /proc /sys /tmp /run /var/log/nginx /var/lib/nginx
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
# Which driver needs which differs from kernel to kernel: what fails is tried again after the others.
left=$(echo /modules/*)
while [ -n "$left" ]; do
    again=
    for module in $left; do
        $b insmod "$module" 2>/dev/null || again="$again $module"
    done
    [ "$again" != "$left" ] || { echo "no driver from $left" && break; }
    left=$again
done
$b ip link set lo up
$b ip address add "$address" dev eth0
$b ip link set eth0 up
$b ip route add default via "$gateway"
ulimit -n 65536
exec $b sh /serve
